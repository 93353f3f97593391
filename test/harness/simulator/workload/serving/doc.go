// Package serving runs HTTPS servers at addresses of virtual hosts. The clients that may connect can change at any time,
// as with a firewall or an unplugged cable.
package serving
