// Package measure reads what processes and API servers cost from those who count it: the kernel and the servers'
// metrics.
package measure
