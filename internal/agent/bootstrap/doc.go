// Package bootstrap turns bootstrap data, as a Cluster API bootstrap provider
// stores it in a Secret, into a Config that says what has to be done to a
// host, and describes it. It performs no I/O; package apply executes a Config.
//
// Parse reads cloud-config the way cloud-init does: jinja before YAML, YAML
// 1.1, the same defaults and the same bytes in the files. Where cloud-init
// would lose a part of a document with no more than a line in its log, Parse
// returns an error with the line and the reason, before anything is touched.
// What has no effect, such as an unknown key, is a Warning.
//
// What cloud-init takes beside cloud-config is taken too: scripts that start
// with "#!", and MIME messages of scripts and cloud-config, the parts of which
// may be gzip'd or jinja templates. Scripts run in the order of their names,
// runcmd being one of them.
//
// Ignition is the second format. It is made for a system that does not run yet:
// what can't be done later (disks, kernel arguments, wiping) is refused with
// the reason, sources other than data URLs are not fetched, and the units that
// a boot would start are started once everything else is in place.
//
// Config is neutral to the format.
package bootstrap
