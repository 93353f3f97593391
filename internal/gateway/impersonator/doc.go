// Package impersonator holds the rights of the authentication proxy in one workload cluster: a
// ServiceAccount without any right, and for each identity that was let in a ClusterRole to
// impersonate exactly that user and those groups. So a request that loses its headers can do
// nothing, and a stolen token is worth the users who were there lately.
//
// Nothing is stored in the management cluster, and no Secret anywhere: tokens come from the
// TokenRequest API and live for an hour.
package impersonator
