// Package forward carries connections of this host's programs to an API server of the
// cluster: the host's own one if it has one, else the one that was connected to last, else
// the first one of the plan that accepts.
//
// It copies bytes. TLS is between the programs and the API server, so the package holds no
// secret, and an API server that is not the cluster's is of no use to anybody. The
// package decides when a backend is no longer used:
//
//   - Connections to it are refused or not answered within two seconds: the next one is
//     tried. All are tried for each connection.
//   - The kernel finds it dead after ten seconds.
//   - /readyz fails twice, ten seconds apart. Its connections are closed, and it is tried
//     after all others.
//   - The plan no longer has it. Its connections are closed.
package forward
