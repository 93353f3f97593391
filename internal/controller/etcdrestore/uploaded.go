package etcdrestore

import (
	"context"
	"errors"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bucket"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/etcdrestore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshotkey"
)

const (
	// readTimeout bounds one look at the destination.
	readTimeout = time.Minute
	// again is how long after a look at a destination that can't be used the next one follows:
	// neither a Secret nor the destination tells that it has changed.
	again = time.Minute
)

// readUploaded finds out what the destination has, if the source is there. A failure is a
// reason to refuse, which people can read.
func (r *Reconciler) readUploaded(ctx context.Context, s *scope) {
	source := s.restore.Spec.Source.Uploaded
	if source == nil || s.infra == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if s.facts.Uploaded, s.recheck = r.look(ctx, s, *source), 0; s.facts.Uploaded.Unusable != nil {
		s.recheck = again
		ctrl.LoggerFrom(ctx).Info("A snapshot at the destination can't be restored", "snapshot", source.ID, "reason", s.facts.Uploaded.Unusable.Error())
	}
}

// look looks at the object, and whether the identity opens it. The key of the object is
// forgotten: a host gets it when it asks.
func (r *Reconciler) look(ctx context.Context, s *scope, source infrav1.EtcdRestoreUpload) etcdrestore.Uploaded {
	policy := s.infra.Spec.EtcdSnapshots
	if policy.Bucket() == nil {
		return etcdrestore.Uploaded{Unusable: errors.New("the ElementalCluster has no spec.etcdSnapshots.destination.s3: " +
			"decrypt a snapshot in a folder onto the host, as the documentation says, and restore that")}
	}
	b, err := bucket.Open(ctx, r.APIReader, s.infra.Namespace, s.facts.Cluster.Name, *policy.Bucket())
	if err != nil {
		return etcdrestore.Uploaded{Unusable: err}
	}
	defer b.Close()
	key, err := snapshotkey.Open(ctx, r.APIReader, b, client.ObjectKeyFromObject(s.facts.Cluster), source)
	if err != nil {
		return etcdrestore.Uploaded{Unusable: err}
	}
	return etcdrestore.Uploaded{Object: key.Object.Name, Snapshot: key.Object.Snapshot}
}
