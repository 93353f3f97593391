//go:build simulator

package simulation_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// A cluster of a ClusterClass is upgraded in place by the version in its topology alone. Cluster API changes that of the
// workers when the control plane has it.
func TestInPlaceUpgradeOfAClass(t *testing.T) {
	u := newHosts(t, 1, 1)
	u.step("1 control plane and 1 worker of a ClusterClass running", func() {
		u.createAll("class.yaml")
		u.eventually(func(ctx context.Context) error { return u.CheckRunning(ctx, name, 2) })
	})
	before, seen := u.identities(), u.observe()
	u.release(newer)
	u.step("upgraded both in place by spec.topology.version", func() {
		cluster := u.cluster()
		old := cluster.DeepCopy()
		cluster.Spec.Topology.Version = newer
		u.Expect(u.Admin.Patch(t.Context(), cluster, client.MergeFrom(old))).To(Succeed())
		u.Eventually(func() error { return u.areMachinesUpgraded(newer) }).Should(Succeed())
	})
	u.Expect(u.identities()).To(Equal(before))
	seen.expectInPlace(u)
	u.Expect(u.roles()).To(Equal([]protocol.UpgradeRole{protocol.UpgradeFirstControlPlane, protocol.UpgradeWorker}))
	u.expectNoResets()
}

// createAll creates the objects of a file in testdata.
func (u *upgradable) createAll(file string) {
	u.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	u.Expect(err).NotTo(HaveOccurred())
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return
		}
		u.Expect(err).NotTo(HaveOccurred())
		u.Expect(u.Admin.Create(u.t.Context(), object)).To(Succeed())
	}
}
