// Package controllertest has what the tests of the controllers share: a client
// that can fail and counts, and the objects of a cluster.
//
// Tests call reconcilers directly against a real API server. Client reads from
// it, not from a cache, so a test sees what it wrote; indexes are those that the
// manager registers, evaluated when listing. What a stale cache does is tested
// by interceptors, and with real managers in test/race.
package controllertest
