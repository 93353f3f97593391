// Package race tests that claims are safe. Machines claim an equal number of hosts while
// two managers run at the same time with stale caches and failing writes. Midway one
// manager stops, and its last writes arrive after that.
//
// At no time may two machines claim one host, or one machine two hosts. At the end each
// machine has a host.
package race
