// Package status writes what hosts report, and whether they are connected, into
// ElementalHost status. Facts are converted by package facts and written at once by the
// HTTP request that reports them. Connection changes and deferred progress and evidence
// are written by workers, which take hosts from a Queue.
package status
