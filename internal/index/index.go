// Package index names the cache indexes that more than one package looks
// objects up by, and registers them.
package index

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// HostByKey finds ElementalHosts by the fingerprint of their key.
	HostByKey = "spec.identity.keyFingerprint"
	// HostByCluster finds ElementalHosts by the Cluster that has claimed them;
	// unclaimed ones have the value Free.
	HostByCluster = "spec.claim.clusterName"
	// HostByMachine finds ElementalHosts by the Machine that has claimed them.
	HostByMachine = "spec.claim.machineName"
	// MachineByClaim finds ElementalMachines by the ID of their claim.
	MachineByClaim = "spec.hostRef.claimID"
	// TokenByHash finds token Secrets by the hash of the token.
	TokenByHash = "data.token-sha256"

	// Free is the value of HostByCluster for unclaimed hosts. It is not a valid
	// name of an object.
	Free = "/free"
	// TokenHashKey is the key of a token Secret that holds the hash.
	TokenHashKey = "token-sha256"
)

// Register adds all indexes. It must be called before the cache starts.
func Register(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range []struct {
		object client.Object
		name   string
		value  func(client.Object) []string
	}{
		{&infrav1.ElementalHost{}, HostByKey, HostKey},
		{&infrav1.ElementalHost{}, HostByCluster, hostCluster},
		{&infrav1.ElementalHost{}, HostByMachine, hostMachine},
		{&infrav1.ElementalMachine{}, MachineByClaim, machineClaim},
		{&corev1.Secret{}, TokenByHash, tokenHash},
	} {
		if err := indexer.IndexField(ctx, i.object, i.name, i.value); err != nil {
			return fmt.Errorf("adding index %s: %w", i.name, err)
		}
	}
	return nil
}

// HostKey is the value of HostByKey.
func HostKey(o client.Object) []string {
	if host, ok := o.(*infrav1.ElementalHost); ok && host.Spec.Identity != nil {
		return []string{host.Spec.Identity.KeyFingerprint}
	}
	return nil
}

func hostCluster(o client.Object) []string {
	host, ok := o.(*infrav1.ElementalHost)
	if !ok {
		return nil
	}
	if host.Spec.Claim == nil {
		return []string{Free}
	}
	return []string{host.Spec.Claim.ClusterName}
}

func hostMachine(o client.Object) []string {
	if host, ok := o.(*infrav1.ElementalHost); ok && host.Spec.Claim != nil && host.Spec.Claim.MachineName != "" {
		return []string{host.Spec.Claim.MachineName}
	}
	return nil
}

func machineClaim(o client.Object) []string {
	if m, ok := o.(*infrav1.ElementalMachine); ok && m.Spec.HostRef != nil {
		return []string{m.Spec.HostRef.ClaimID}
	}
	return nil
}

func tokenHash(o client.Object) []string {
	if s, ok := o.(*corev1.Secret); ok && len(s.Data[TokenHashKey]) > 0 {
		return []string{string(s.Data[TokenHashKey])}
	}
	return nil
}
