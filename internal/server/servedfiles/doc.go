// Package servedfiles finds the files that the manager serves to hosts, agent binaries and
// bundles of Kubernetes: the regular files of given folders, by their SHA-256. Only
// the agents that bare hosts install are found by their file name.
package servedfiles
