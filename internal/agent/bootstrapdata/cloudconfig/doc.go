// Package cloudconfig parses everything that cloud-init accepts as user data:
// cloud-config, scripts that start with "#!", Jinja templates, and MIME messages
// of these, each possibly compressed.
//
// The order is cloud-init's: split the message into parts, render Jinja, read
// YAML 1.1, merge the parts. Defaults and file contents are cloud-init's, too.
// Package parser calls it. It performs no I/O.
package cloudconfig
