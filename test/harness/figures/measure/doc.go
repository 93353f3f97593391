// Package measure reads the resource usage of processes from the kernel and the writes of API servers from their metrics.
package measure
