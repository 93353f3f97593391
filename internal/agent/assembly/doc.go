// Package assembly puts an agent together: the manager connection, the operations and
// the run loop. The agent's program and the virtual hosts of tests both use it, so that
// tests run the same agent.
//
// Callers provide what differs between a machine and a virtual host: the platform, the
// executor of bootstrap data, keys, the dialler and the clock. This package reads no
// configuration and no flags.
package assembly
