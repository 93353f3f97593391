// Package mounts tells what is mounted on the host, so that nothing is deleted
// that only shows there.
package mounts
