// Package serving serves at an address of a virtual host: with a certificate of its own, for as long as the
// host has power. Who may connect can change at any time, as with a firewall or a cable.
package serving
