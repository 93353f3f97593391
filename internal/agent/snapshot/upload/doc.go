// Package upload uploads snapshots of etcd, encrypted.
//
// An object is a tar archive with ID.json, which says what the snapshot is, and ID.db, the
// snapshot itself, encrypted with age (https://age-encryption.org/v1) for all recipients. So
// what the object says of itself can't be changed by anybody without an identity, and
// standard programs open it:
//
//	age -d -i KEY OBJECT | tar x
//
// The object is made while it is sent. An upload that was interrupted begins anew.
package upload
