"""An index whose rows lie on disk: `iknow.search.disk.disk_index.DiskIndex`."""
