"""Segments: changes of the evidence, appended to a bundle's file.

    base archive | marks | segment 1 | segment 2 | ...

The base is an archive (`storage.archive`) that never changes. Each change is a *segment* behind it:
a header, and a payload that is an archive too (`change_record`). A header holds the digest of what
came before: of the base's manifest, or of the segment before it. So the last digest seals the whole
file, and is the bundle's sha256.

Two *marks*, right behind the base, say how far the file is committed (`marks`). A writer holds the
lock, appends a segment, waits for the disk, writes the mark, waits for the disk again, and only
then says that it is done. From that follows what a reader may conclude (`chain`):

- What lies within the mark was acknowledged. If it is missing or wrong, the file is damaged, and
  that is an error, also at its very end: no flipped bit and no shortened copy undoes a removal.
- What lies beyond the mark was never acknowledged: a writer was interrupted. Readers ignore it, and
  the next writer cuts it off.
- The two marks take turns, so an interrupted writing spoils one of them at most, and only after its
  segment was on disk. So while one is unreadable, all complete segments count, and an incomplete
  one is damage.
"""
