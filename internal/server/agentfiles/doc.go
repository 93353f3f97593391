// Package agentfiles finds the agent binaries that the manager serves: the regular files of
// given folders, by their SHA-256. File names are ignored.
package agentfiles
