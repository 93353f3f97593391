// Package host gives the steps access to the host: its files below a root
// directory, its programs, and its users and groups. Paths are the host's, and
// symbolic links are resolved as if the root directory were "/".
//
// It records nothing. Package step records what the steps change.
package host
