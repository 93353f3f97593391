package server_test

import (
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	hostclient "github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/fetch"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/upload"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/etcdmember"
)

// fetches is the API with a host whose snapshot is at the destination, and a confirmed restore
// of it.
type fetches struct {
	*uploads
	a       *agent
	store   *snapshot.Store
	facts   protocol.EtcdSnapshotFacts
	object  string
	restore *infrav1.ElementalEtcdRestore
}

func newFetches(t *testing.T) *fetches {
	t.Helper()
	return newFetchesOf(t, newUploads(t), func(*upload.Uploader) {})
}

// newFetchesOf is newFetches for a storage, with another uploader.
func newFetchesOf(t *testing.T, u *uploads, change func(*upload.Uploader)) *fetches {
	t.Helper()
	f := &fetches{uploads: u}
	f.a = f.member("m1")
	member := etcdmember.New(t)
	member.Put(t, "key", "value")
	f.store = &snapshot.Store{
		Root: member.Root, Folder: filepath.Join(t.TempDir(), snapshot.Folder), System: durable.OS{}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Space: func(string) (int64, int64, error) { return 1 << 40, 1 << 40, nil },
	}
	c := f.a.client()
	uploader := &upload.Uploader{Source: f.store, Manager: func() upload.Manager { return hostclient.Snapshots{Client: c} }, Log: slog.New(slog.DiscardHandler)}
	change(uploader)
	id := f.last(f.a, 1)
	f.must(f.store.Take(t.Context(), protocol.EtcdSnapshot{ID: id, Cluster: protocol.EtcdCluster{Namespace: f.namespace, Name: "c"}, Keep: 1}))
	list, err := f.store.List(t.Context())
	f.must(err)
	f.facts = list[0]
	f.report(f.a, protocol.Report{EtcdSnapshots: &protocol.EtcdSnapshotReport{Snapshots: list}})
	done, err := uploader.Upload(t.Context(), *f.a.plan("").Desired.EtcdSnapshotUpload)
	f.must(err)
	f.object = done.Object
	f.secret("identity", map[string]string{"identity": f.identity.String()})
	f.confirm()
	return f
}

// confirm creates a restore as the controller leaves it when the host is asked.
func (f *fetches) confirm() {
	f.tb.Helper()
	f.restore = &infrav1.ElementalEtcdRestore{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "r"}}
	f.restore.Spec = infrav1.ElementalEtcdRestoreSpec{
		ClusterName: "c", Confirm: "c",
		Source: infrav1.EtcdRestoreSource{Uploaded: &infrav1.EtcdRestoreUpload{
			HostName: f.a.name, ID: f.facts.ID, IdentityRef: infrav1.EtcdRestoreIdentityReference{Name: "identity"},
		}},
		Request: &infrav1.EtcdRestoreRequest{ID: "claim-m1.1", HostName: f.a.name, SHA256: f.facts.SHA256},
	}
	f.must(f.admin.Create(f.tb.Context(), f.restore))
	f.askToRestore(f.a, "claim-m1.1")
}

// askToRestore makes the host's spec have the restore.
func (f *fetches) askToRestore(a *agent, id string) {
	f.tb.Helper()
	f.cachedSoon(f.patch(a.name, func(h *infrav1.ElementalHost) {
		h.Spec.EtcdRestore = &infrav1.HostEtcdRestore{ID: id, RestoreName: "r", SnapshotID: f.facts.ID, SHA256: f.facts.SHA256, Uploaded: new(true)}
	}))
}

// reconfirm replaces the restore by a changed one.
func (f *fetches) reconfirm(change func(*infrav1.ElementalEtcdRestoreSpec)) {
	f.tb.Helper()
	f.must(f.admin.Delete(f.tb.Context(), f.restore))
	changed := &infrav1.ElementalEtcdRestore{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "r"}, Spec: *f.restore.Spec.DeepCopy()}
	change(&changed.Spec)
	f.must(f.admin.Create(f.tb.Context(), changed))
}

func (f *fetches) want(a *agent, id string) answer {
	return a.call(http.MethodPost, protocol.PathEtcdSnapshotFetch, protocol.EtcdSnapshotFetchRequest{ID: id})
}

// The agent's own code downloads what it has uploaded, after the host has lost it, and what it
// gets is the snapshot that a real etcd has made.
func TestSnapshotsComeBack(t *testing.T) {
	f := newFetches(t)
	f.must(os.RemoveAll(f.store.Folder))
	op := f.a.plan("").Operation
	f.Expect(op.EtcdRestore.Uploaded).To(BeTrue())
	c := f.a.client()
	fetcher := &fetch.Fetcher{Store: f.store, Manager: func() fetch.Manager { return hostclient.Snapshots{Client: c} }, Log: slog.New(slog.DiscardHandler)}
	f.must(fetcher.Fetch(t.Context(), op.ID, *op.EtcdRestore))
	_, facts, err := f.store.Verify(t.Context(), f.facts.ID)
	f.must(err)
	f.Expect(facts).To(Equal(f.facts))
	f.Expect(f.logs.text()).To(ContainSubstring(`"decision":"SnapshotFetchGranted"`))
	f.Expect(f.logs.text()).NotTo(ContainSubstring("X-Amz-Signature"))
}

// A host gets the key of the object of its own confirmed restore while that goes on, and
// nothing else. The identity never leaves the manager.
func TestThreat83_OnlyTheConfirmedSnapshotIsPermitted(t *testing.T) {
	f := newFetches(t)
	other := f.member("m2")
	const id = "claim-m1.1"
	got := f.want(f.a, id)
	f.Expect(got.status).To(Equal(http.StatusOK), got.body)
	var grant protocol.EtcdSnapshotFetchGrant
	f.must(json.Unmarshal([]byte(got.body), &grant))
	f.Expect(grant.Object).To(Equal(f.object))
	f.Expect(grant.FileKey).To(HaveLen(protocol.FileKeyBytes))
	f.Expect(got.body).NotTo(ContainSubstring(f.identity.String()))
	f.Expect(f.want(f.a, id).status).To(Equal(http.StatusOK), "after a power cut it asks again")
	f.Expect(f.logs.text()).NotTo(ContainSubstring(base64.StdEncoding.EncodeToString(grant.FileKey)))
	f.Expect(f.logs.text()).NotTo(ContainSubstring("AGE-SECRET-KEY"))

	refused := func(what string, got answer, status int) {
		t.Helper()
		f.Expect(got.status).To(Equal(status), "%s: %s", what, got.body)
		f.Expect(got.body).NotTo(ContainSubstring("fileKey"), what)
	}
	refused("another operation", f.want(f.a, "claim-m1.2"), http.StatusNotFound)
	refused("another host", f.want(other, id), http.StatusNotFound)
	f.askToRestore(other, id)
	refused("another host that is asked too", f.want(other, id), http.StatusNotFound)

	for what, change := range map[string]func(*infrav1.ElementalEtcdRestoreSpec){
		"unconfirmed":       func(s *infrav1.ElementalEtcdRestoreSpec) { s.Confirm = "" },
		"not begun":         func(s *infrav1.ElementalEtcdRestoreSpec) { s.Request = nil },
		"another request":   func(s *infrav1.ElementalEtcdRestoreSpec) { s.Request.ID = "claim-m1.2" },
		"ended":             func(s *infrav1.ElementalEtcdRestoreSpec) { s.Request.Result = infrav1.EtcdRestoreFailed },
		"of another host":   func(s *infrav1.ElementalEtcdRestoreSpec) { s.Request.HostName = other.name },
		"of another object": func(s *infrav1.ElementalEtcdRestoreSpec) { s.Source.Uploaded.ID = "20260101T000000Z" },
		"of the host's own snapshot": func(s *infrav1.ElementalEtcdRestoreSpec) {
			s.Source.Snapshot, s.Source.Uploaded = &infrav1.EtcdRestoreSnapshot{HostName: f.a.name, ID: f.facts.ID}, nil
		},
	} {
		f.reconfirm(change)
		refused(what, f.want(f.a, id), http.StatusNotFound)
	}
	f.reconfirm(func(*infrav1.ElementalEtcdRestoreSpec) {})
	f.Expect(f.want(f.a, id).status).To(Equal(http.StatusOK))

	f.must(f.admin.Patch(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "identity"}},
		client.RawPatch(types.MergePatchType, []byte(`{"data":{"identity":"eA=="}}`))))
	got = f.want(f.a, id)
	refused("a wrong identity", got, http.StatusServiceUnavailable)
	f.Expect(got.body).NotTo(ContainSubstring("Secret"), "hosts learn nothing of the management cluster")
	f.Expect(f.a.reportOperation(protocol.OperationEtcdRestore, id, protocol.StateFailed).status).To(Equal(http.StatusNoContent))
	f.cachedSoon(f.host(f.a.name))
	refused("the host's restore has ended", f.want(f.a, id), http.StatusNotFound)
}
