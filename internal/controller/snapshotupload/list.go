package snapshotupload

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bucket"
)

// split returns the newest snapshots, the newest one first, and the others.
func split(objects []bucket.Object, keep int) (newest, old []bucket.Object) {
	// IDs are times.
	slices.SortFunc(objects, func(a, b bucket.Object) int { return cmp.Or(cmp.Compare(b.ID, a.ID), cmp.Compare(a.Name, b.Name)) })
	n := min(keep, len(objects))
	return objects[:n], objects[n:]
}

// describe returns what is known of the newest objects. It asks the destination only for those
// that former does not have.
func describe(ctx context.Context, b *bucket.Bucket, objects []bucket.Object, former *infrav1.UploadedEtcdSnapshots, host *infrav1.ElementalHost) ([]infrav1.UploadedEtcdSnapshot, error) {
	var items []infrav1.UploadedEtcdSnapshot
	for _, object := range objects[:min(len(objects), infrav1.MaxUploadedEtcdSnapshots)] {
		item := infrav1.UploadedEtcdSnapshot{
			Object: object.Name, ID: object.ID, HostName: object.Host, SizeBytes: object.SizeBytes, UploadedAt: metav1.NewTime(object.ModifiedAt.UTC()),
		}
		if known := find(former, item); known != nil {
			item = *known
		} else {
			facts, err := b.Facts(ctx, object.Name)
			if err != nil {
				return nil, err
			}
			bucket.Describe(&item, facts)
		}
		if said := reported(host); said != nil && said.Object == item.Object && said.SizeBytes == item.SizeBytes {
			item.SHA256 = said.SHA256
		}
		items = append(items, item)
	}
	return items, nil
}

// find returns what is known of the same version of an object, or nil.
func find(former *infrav1.UploadedEtcdSnapshots, item infrav1.UploadedEtcdSnapshot) *infrav1.UploadedEtcdSnapshot {
	if former == nil {
		return nil
	}
	for i := range former.Items {
		if f := &former.Items[i]; f.Object == item.Object && f.SizeBytes == item.SizeBytes && f.UploadedAt.Equal(&item.UploadedAt) {
			return f
		}
	}
	return nil
}

// reported is the last upload that a host has reported, or nil.
func reported(host *infrav1.ElementalHost) *infrav1.HostEtcdSnapshotObject {
	if host == nil || host.Status.EtcdSnapshotUpload == nil {
		return nil
	}
	return host.Status.EtcdSnapshotUpload.Last
}

// list writes the list into status, unless it is there already.
func (r *Reconciler) list(infra *infrav1.ElementalCluster, items []infrav1.UploadedEtcdSnapshot) {
	if former := infra.Status.EtcdSnapshots; former == nil || !equality.Semantic.DeepEqual(former.Items, items) {
		infra.Status.EtcdSnapshots = &infrav1.UploadedEtcdSnapshots{Items: items, ObservedAt: metav1.NewTime(r.Clock.Now().UTC())}
	}
}

// isNewer reports whether a snapshot is none of the former ones and newer than all of them, so
// that an older one that comes into a shorter list does not count as uploaded.
func isNewer(item *infrav1.UploadedEtcdSnapshot, former []infrav1.UploadedEtcdSnapshot) bool {
	return !slices.ContainsFunc(former, func(f infrav1.UploadedEtcdSnapshot) bool { return f.ID > item.ID || f.Object == item.Object })
}
