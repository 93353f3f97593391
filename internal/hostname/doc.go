// Package hostname makes the names of ElementalHosts from a registration's
// spec.hostTemplate.namePattern. It is pure, and shared by the server, which
// names hosts with it, and the webhook, which refuses patterns it can't read.
//
// A pattern is a text/template over Data:
//
//	name, err := hostname.Render(registration.Spec.HostTemplate.NamePattern, hostname.Data{HostID: id, Inventory: inventory})
//
// The name is a DNS label, whatever the host says of itself: an inventory is an
// assertion of the host, so everything that comes out of it is sanitised and
// bounded. If the name is taken, WithSuffix makes one that is not.
package hostname
