// Package registration reconciles ElementalRegistrations: it publishes the server URL and
// the trust bundle for hosts, keeps the registration's token Secrets, and reports whether
// the pinned agent binaries can be downloaded.
//
// It creates one token by itself and never renews it, because an unused token is a
// needless risk. Deleting the Secret revokes the token and creates another. Token Secrets
// that an administrator creates count as well. This package does not touch hosts: they
// stay when their registration is deleted.
package registration
