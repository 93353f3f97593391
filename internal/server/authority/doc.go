// Package authority is the certificate authority of the agent API. Its keys and
// roots are in one Secret, which is made once and never replaced by itself: it is
// the one thing that a backup must hold, for hosts trust nothing else. Serving
// certificates are made from it in memory and never stored.
//
// Authority knows what the Secret holds; Reconciler follows it, puts it back when
// it is deleted, and takes the steps of a rotation that an administrator asks for
// by an annotation: docs/adr/0014-ca-rotation.md.
package authority
