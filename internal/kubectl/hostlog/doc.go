// Package hostlog asks a host for the log of an operation, waits for it, and reads it from its
// Secret.
package hostlog
