// Package storage connects hosts to the destination of snapshots, with permissions for one
// object.
package storage
