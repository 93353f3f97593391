// Package bootstrapdata defines Config, the content of bootstrap data in any of its
// formats. The package describes a Config for people and redacts secrets in texts.
//
// Package parser makes a Config from the data of a bootstrap Secret, and package apply
// executes the Config. The packages:
//
//	parser       selects the parser by format
//	cloudconfig  parses the formats of cloud-init: cloud-config, scripts, MIME, Jinja
//	ignition     parses Ignition 2.x and 3.x
//	document     reads YAML 1.1 and JSON into values with their lines
//	jinja        renders Jinja templates
//	apply        executes a Config on the host, and undoes it
//	script       runs a script exactly once
//
// Parsing performs no I/O. cloud-init ignores faulty parts of a document and only logs
// them. The parsers here return an error with the line and the reason instead, before
// anything changes on the host. A part of a document that has no effect,
// such as an unknown key, is a Warning.
package bootstrapdata
