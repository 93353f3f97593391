// Package authority is the certificate authority of the agent API. Its key and
// roots are in one Secret, which is made once and never overwritten: it is the
// one thing that a backup must hold, for hosts trust nothing else. Serving
// certificates are made from it in memory and never stored.
package authority
