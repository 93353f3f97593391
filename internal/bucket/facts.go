package bucket

import (
	"regexp"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Keys of the metadata of objects.
const (
	revisionKey   = "etcd-revision"
	digestKey     = "snapshot-sha256"
	kubernetesKey = "kubernetes-version"
	etcdKey       = "etcd-version"
	completedKey  = "completed-at"
)

var (
	digestPattern  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	versionPattern = regexp.MustCompile(`^[0-9A-Za-z.+_-]{1,63}$`)
)

// FactsOf returns the metadata of the object of a snapshot. What does not fit into a header is
// left out.
func FactsOf(s infrav1.HostEtcdSnapshot) map[string]string {
	facts := map[string]string{digestKey: s.SHA256}
	if s.Revision > 0 {
		facts[revisionKey] = strconv.FormatInt(s.Revision, 10)
	}
	if !s.CompletedAt.IsZero() {
		facts[completedKey] = s.CompletedAt.UTC().Format(time.RFC3339)
	}
	for key, version := range map[string]string{kubernetesKey: s.KubernetesVersion, etcdKey: s.EtcdVersion} {
		if versionPattern.MatchString(version) {
			facts[key] = version
		}
	}
	return facts
}

// Describe sets what metadata tells of a snapshot. The storage may have changed it, so
// whatever has another form is left out.
func Describe(s *infrav1.UploadedEtcdSnapshot, facts map[string]string) {
	if d := facts[digestKey]; digestPattern.MatchString(d) {
		s.SnapshotSHA256 = d
	}
	if n, err := strconv.ParseInt(facts[revisionKey], 10, 64); err == nil && n > 0 {
		s.Revision = n
	}
	for key, version := range map[string]*string{kubernetesKey: &s.KubernetesVersion, etcdKey: &s.EtcdVersion} {
		if v := facts[key]; versionPattern.MatchString(v) {
			*version = v
		}
	}
}

// snapshotOf returns the snapshot that sealed metadata is of.
func snapshotOf(id string, facts map[string]string) infrav1.HostEtcdSnapshot {
	var described infrav1.UploadedEtcdSnapshot
	Describe(&described, facts)
	s := infrav1.HostEtcdSnapshot{
		ID: id, SHA256: described.SnapshotSHA256, Revision: described.Revision,
		KubernetesVersion: described.KubernetesVersion, EtcdVersion: described.EtcdVersion,
	}
	if at, err := time.Parse(time.RFC3339, facts[completedKey]); err == nil {
		s.CompletedAt = metav1.NewTime(at)
	}
	return s
}
