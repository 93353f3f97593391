// Package race tests that claims are safe: many machines want as many hosts,
// two managers work at once with caches that lag and writes that fail, and one
// of them is deposed half-way and yet writes on for a moment.
//
// Whatever happens, no host is ever two machines', no machine ever has two
// hosts, and in the end each machine has one.
package race
