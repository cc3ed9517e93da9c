/* Rules that users bring with a mirror of their own: the page's maker writes them here. */

/** @type {Record<string, import("../types").Rule>} */
export const OWN = {};
