// Package controllertest is shared by the tests of the controllers: a client that counts
// writes and injects failures, and the objects of a cluster.
//
// Tests call reconcilers directly against a real API server. Client reads from it, not from
// a cache, so that a test sees its own writes. It evaluates the manager's indexes when it
// lists. Interceptors test a stale cache, and test/suite/race tests real managers.
package controllertest
