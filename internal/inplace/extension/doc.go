// Package extension keeps the ExtensionConfig, by which Cluster API finds this provider's
// hooks for updates in place.
//
// It is not among the manifests, because Cluster API refuses any ExtensionConfig unless its
// feature gate RuntimeSDK is on, and clusterctl would fail. An ExtensionConfig whose server
// is gone blocks every rollout in its namespaces, so it is removed when the provider is told
// not to offer the hooks.
package extension
