// Package crds pins the modules whose CRDs tests check examples with.
package crds

import (
	_ "sigs.k8s.io/cluster-api-operator/api/v1alpha2" // CRDs of the Cluster API Operator
	_ "sigs.k8s.io/gateway-api/apis/v1"               // CRDs of Gateway API
)
