// Package kubernetesrelease reconciles ElementalKubernetesReleases: it reports whether the
// manager serves the bundles that hosts may get from it. Hosts are not touched here.
package kubernetesrelease
