/* The names of the assertions, in the order of their codes. */

export const ASSERTIONS = ["IDK", "IMK", "IK"];
