// Package connection is the agent's connection to the manager: the client in use, the
// servers and the trust bundle it uses, and the rotation of the host's key.
//
// Key, servers and trust bundle change while the agent runs. Manager replaces the
// client then, so callers must ask for Manager.Client each time. A new key, new servers
// and a new trust bundle are durable in the state.Store before the client in use is
// replaced.
//
// The run loop decides when to call the manager; this package only says how long to
// wait after a failure (Delays).
package connection
