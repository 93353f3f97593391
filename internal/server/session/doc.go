// Package session keeps what the manager knows in memory of connected hosts: their
// open polls, when the last one ended, the boots that polled, the revision of the
// last plan, progress and endpoint evidence that is not written yet, and the rate of
// their HTTP requests. A restart may lose all of it.
//
// It writes nothing to the API server. It calls a function when a host's status may
// have to be written, which package status does.
package session
