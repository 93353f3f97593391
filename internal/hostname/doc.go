// Package hostname renders the names of ElementalHosts from a registration's
// spec.hostTemplate.namePattern. The agent API names hosts with it, and the webhook
// validates patterns with it. It is pure.
//
// A pattern is a text/template over Data:
//
//	name, err := hostname.Render(registration.Spec.HostTemplate.NamePattern, hostname.Data{HostID: id, Inventory: inventory})
//
// The result is always a DNS label. A host can report any inventory, so all values are
// sanitized and bounded. Its own name is used only if it is a DNS name. If a host of that name exists, WithSuffix returns another name.
package hostname
