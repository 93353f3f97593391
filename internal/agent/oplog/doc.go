// Package oplog keeps the log of the last operation of each type on the host: its steps with
// their times, its result, and what its programs printed. A log outlives the reset that removes
// the folder of a bootstrap, so secrets are removed before it is written. It is bounded: the
// beginning and the end stay, and the middle is cut.
package oplog
