// Package tunnel carries streams from the manager to a host over one connection that
// the host has made: HTTP/2 in the reverse direction. The manager is the HTTP/2 client
// (Session), the agent the server (Serve). A stream is one CONNECT request, which the
// agent acknowledges after it has connected to the target.
//
// Targets are names that the agent's Dialer knows, never addresses, so that the manager
// can reach nothing else on the host or in its network.
//
// The connection is taken after the HTTP/1.1 upgrade, with nothing buffered. Both
// programs import the package, so it uses the standard library only.
package tunnel
