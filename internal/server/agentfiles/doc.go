// Package agentfiles knows the agent's binaries that the manager can serve: the
// regular files of a few folders, by their SHA-256. Names mean nothing.
package agentfiles
