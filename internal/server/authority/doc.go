// Package authority is the certificate authority (CA) of the agent API. Its keys and
// root certificates are in one Secret, which is created once and never replaced
// automatically. Backups must include it, because hosts trust no other CA. Serving
// certificates are issued in memory and never stored.
//
// Authority issues certificates from the Secret. Reconciler watches the Secret,
// restores it when it is deleted, and executes the steps of a CA rotation that an
// administrator requests by an annotation: docs/adr/0014-ca-rotation.md.
package authority
