package v1beta2_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

func TestElementalHostCreate(t *testing.T) {
	fingerprint := "sha256:" + strings.Repeat("0a", 32)
	testCreations(t, "ElementalHost", []creation{
		{name: "no spec"},
		{name: "pre-declared", spec: `spec: {approval: Approved, hostname: edge-1.example.com}`},
		{name: "enrolled", spec: `spec: {hostID: h1, identity: {keyFingerprint: "` + fingerprint + `", generation: 2}, registrationRef: {name: r}}`},
		{name: "reserved", spec: `spec: {claim: {clusterName: c, phase: Reserved}}`},
		{name: "bound", spec: `spec: {claim: {id: "1", clusterName: c, machineName: m, phase: Bound}}`},
		{name: "releasing", spec: `spec: {claim: {id: "1", clusterName: c, machineName: m, phase: Releasing}}`},
		{name: "held", spec: `spec: {claim: {id: "1", clusterName: c, machineName: m, phase: Held, erase: Zero}}`},
		{name: "cordoned", spec: `spec: {cordon: {reason: fan broken}}`},
		{name: "declared for adoption", spec: `spec: {adoption: {clusterName: c, role: Worker}}`},
		{name: "declared by serial number", spec: `spec: {identity: {match: {serialNumber: "4711"}}}`},
		{name: "declared by key", spec: `spec: {identity: {match: {keyFingerprint: "` + fingerprint + `"}}}`},
		{name: "rotating", spec: `spec: {identity: {keyFingerprint: "` + fingerprint + `", nextKeyFingerprint: "` + fingerprint + `", formerKeyFingerprint: "` + fingerprint + `"}}`},
		{name: "locked", spec: `spec: {lock: {reason: Cloned, message: two hosts}}`},
		{name: "pending for a reason", spec: `spec: {pendingReason: Readopted}`},
		{name: "in maintenance", spec: `spec: {maintenance: {reason: new disk}}`},
		{name: "in maintenance for a while", spec: `spec: {maintenance: {reason: new disk, until: "2026-01-01T00:00:00Z"}}`},
		{name: "in quarantine", spec: `spec: {quarantine: {reason: failed twice, until: "2026-01-01T00:00:00Z", failures: 2}}`},
		{name: "fenced", spec: `spec: {fence: {reason: dead}}`},
		{name: "to be rebooted", spec: `spec: {reboot: {id: "1"}}`},
		{name: "to be upgraded", spec: `spec: {osUpgrade: {id: "1", image: "oci:registry.example.com/os:v2"}}`},
		{name: "to boot another image below its Node", spec: `spec: {nodeUpgrade: {id: "1", role: Worker, osImage: "oci:registry.example.com/os:v2"}}`},

		{name: "upgrade of a Node to nothing", spec: `spec: {nodeUpgrade: {id: "1", role: Worker}}`, err: "give either bundle or osImage"},
		{name: "upgrade of a Node to a bare name", spec: `spec: {nodeUpgrade: {id: "1", role: Worker, osImage: "registry.example.com/os:v2"}}`, err: "should match '^(oci|docker|dir|file)"},
		{name: "upgrade of a Node to two things", spec: `spec: {nodeUpgrade: {id: "1", role: Worker, osImage: "oci:os:v2", bundle: {version: v1.36.3, sha256: ` + long(64) + `, sizeBytes: 1, sources: [manager]}}}`,
			err: "give either bundle or osImage"},
		{name: "adopted by nobody", spec: `spec: {adoption: {role: Worker}}`, err: "adoption.clusterName: Required value"},
		{name: "adopted in no role", spec: `spec: {adoption: {clusterName: c}}`, err: "adoption.role: Required value"},
		{name: "adopted in an unknown role", spec: `spec: {adoption: {clusterName: c, role: InitialControlPlane}}`, err: `Unsupported value: "InitialControlPlane"`},
		{name: "claim of an authority without a hash", spec: `spec: {claim: {id: "1", clusterName: c, machineName: m, phase: Bound, adoption: {endpoint: "a:6443", authorityHash: "sha256:1"}}}`, err: "at least 71 chars"},
		{name: "unknown approval", spec: `spec: {approval: Yes}`, err: "spec.approval"},
		{name: "fingerprint without algorithm", spec: `spec: {identity: {keyFingerprint: ` + long(64) + `}}`, err: "should match '^sha256:"},
		{name: "fingerprint too short", spec: `spec: {identity: {keyFingerprint: "sha256:00"}}`, err: "should match '^sha256:"},
		{name: "identity of nobody", spec: `spec: {identity: {generation: 1}}`, err: "a match that tells who may become the host"},
		{name: "declared by nothing", spec: `spec: {identity: {match: {}}}`, err: "give either serialNumber or keyFingerprint"},
		{name: "declared twice", spec: `spec: {identity: {match: {serialNumber: "4711", keyFingerprint: "` + fingerprint + `"}}}`, err: "give either serialNumber or keyFingerprint"},
		{name: "locked for no reason", spec: `spec: {lock: {message: a}}`, err: "lock.reason: Required value"},
		{name: "locked for an unknown reason", spec: `spec: {lock: {reason: Stolen}}`, err: `Unsupported value: "Stolen"`},
		{name: "pending for an unknown reason", spec: `spec: {pendingReason: New}`, err: `Unsupported value: "New"`},
		{name: "maintenance without reason", spec: `spec: {maintenance: {until: "2026-01-01T00:00:00Z"}}`, err: "maintenance.reason: Required value"},
		{name: "maintenance until whenever", spec: `spec: {maintenance: {reason: a, until: tomorrow}}`, err: "must be of type date-time"},
		{name: "quarantine for ever", spec: `spec: {quarantine: {reason: a}}`, err: "quarantine.until: Required value"},
		{name: "fenced without reason", spec: `spec: {fence: {}}`, err: "fence.reason: Required value"},
		{name: "reboot without id", spec: `spec: {reboot: {}}`, err: "reboot.id: Required value"},
		{name: "upgrade to nothing", spec: `spec: {osUpgrade: {id: "1"}}`, err: "osUpgrade.image: Required value"},
		{name: "upgrade to a bare name", spec: `spec: {osUpgrade: {id: "1", image: "registry.example.com/os:v2"}}`, err: "should match '^(oci|docker|dir|file)"},
		{name: "erased by an unknown method", spec: `spec: {claim: {id: "1", clusterName: c, machineName: m, phase: Releasing, erase: Shred}}`, err: `Unsupported value: "Shred"`},
		{name: "held without id", spec: `spec: {claim: {clusterName: c, machineName: m, phase: Held}}`, err: "names its machine and id"},
		{name: "generation 0", spec: `spec: {identity: {keyFingerprint: "` + fingerprint + `", generation: 0}}`, err: "should be greater than or equal to 1"},
		{name: "bound to no machine", spec: `spec: {claim: {id: "1", clusterName: c, phase: Bound}}`, err: "names its machine and id"},
		{name: "bound without id", spec: `spec: {claim: {clusterName: c, machineName: m, phase: Bound}}`, err: "names its machine and id"},
		{name: "releasing without id", spec: `spec: {claim: {clusterName: c, machineName: m, phase: Releasing}}`, err: "names its machine and id"},
		{name: "claim of no cluster", spec: `spec: {claim: {phase: Reserved}}`, err: "clusterName: Required value"},
		{name: "claim without phase", spec: `spec: {claim: {clusterName: c}}`, err: "phase: Required value"},
		{name: "claim of unknown phase", spec: `spec: {claim: {clusterName: c, phase: Free}}`, err: `Unsupported value: "Free"`},
		{name: "cordon without reason", spec: `spec: {cordon: {}}`, err: "cordon.reason: Required value"},
		{name: "hostname in capitals", spec: `spec: {hostname: Edge1}`, err: "should match"},
		{name: "hostname ends in a dash", spec: `spec: {hostname: edge-}`, err: "should match"},
		{name: "unknown field", spec: `spec: {unschedulable: true}`, err: `unknown field "spec.unschedulable"`},
	})
}

func TestElementalHostUpdate(t *testing.T) {
	const bound = `claim: {id: "1", clusterName: c, machineName: m, phase: Bound}`
	testChanges(t, "ElementalHost", []change{
		{name: "first ID", from: `spec: {}`, to: `spec: {hostID: h1}`},
		{name: "hostname of a free host", from: `spec: {hostname: a}`, to: `spec: {hostname: b}`},
		{name: "claim", from: `spec: {hostname: a}`, to: `spec: {hostname: a, ` + bound + `}`},
		{name: "held, then released", from: `spec: {claim: {id: "1", clusterName: c, machineName: m, phase: Held}}`, to: `spec: {claim: {id: "1", clusterName: c, machineName: m, phase: Releasing}}`},
		{name: "key cleared for another machine", from: `spec: {identity: {keyFingerprint: "sha256:` + strings.Repeat("0", 64) + `", match: {serialNumber: "4711"}}}`, to: `spec: {identity: {match: {serialNumber: "4711"}}}`},
		{name: "claim given up", from: `spec: {hostname: a, ` + bound + `}`, to: `spec: {hostname: a}`},
		{name: "re-imaged", from: `spec: {hostID: h1, identity: {keyFingerprint: "sha256:` + strings.Repeat("0", 64) + `"}}`, to: `spec: {hostID: h1}`},
		{name: "declared Node that a machine claims", from: `spec: {adoption: {clusterName: c, role: Worker}}`, to: `spec: {adoption: {clusterName: c, role: Worker}, ` + bound + `}`},

		{name: "adoption declared on a claimed host", from: `spec: {` + bound + `}`, to: `spec: {adoption: {clusterName: c, role: Worker}, ` + bound + `}`, err: "can't be declared for adoption"},
		{name: "ID changed", from: `spec: {hostID: h1}`, to: `spec: {hostID: h2}`, err: "hostID is the host's for ever"},
		{name: "ID removed", from: `spec: {hostID: h1}`, to: `spec: {}`, err: "hostID is the host's for ever"},
		{name: "hostname of a claimed host", from: `spec: {hostname: a, ` + bound + `}`, to: `spec: {hostname: b, ` + bound + `}`, err: "hostname can't change while the host is claimed"},
		{name: "hostname added to a claimed host", from: `spec: {` + bound + `}`, to: `spec: {hostname: b, ` + bound + `}`, err: "hostname can't change while the host is claimed"},
	})
}

func TestElementalHostDefaults(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: env.Namespace(t)}}
	host.Spec.HostID = "h1"
	g.Expect(env.Client(t).Create(t.Context(), host)).To(Succeed())
	g.Expect(host.Spec.Approval).To(Equal(infrav1.ApprovalPending), "nobody is let in by leaving a field out")
}

func TestElementalHostStatusIsBounded(t *testing.T) {
	c, namespace := env.Client(t), env.Namespace(t)
	for _, tc := range []struct {
		name string
		set  func(*infrav1.ElementalHostStatus)
		err  string
	}{
		{name: "long message", err: "Too long", set: func(s *infrav1.ElementalHostStatus) {
			s.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "1", State: infrav1.OperationFailed, Message: long(1025)}}
		}},
		{name: "two operations of a type", err: "Duplicate value", set: func(s *infrav1.ElementalHostStatus) {
			op := infrav1.HostOperation{Type: infrav1.OperationReset, ID: "1", State: infrav1.OperationRunning}
			s.Operations = []infrav1.HostOperation{op, op}
		}},
		{name: "many leftovers", err: "must have at most 16 items", set: func(s *infrav1.ElementalHostStatus) {
			s.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessDirty, Leftovers: make([]string, 17)}
		}},
		{name: "unknown operation", err: "Unsupported value", set: func(s *infrav1.ElementalHostStatus) {
			s.Operations = []infrav1.HostOperation{{Type: "Format", ID: "1", State: infrav1.OperationRunning}}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: namespace}}
			g.Expect(c.Create(t.Context(), host)).To(Succeed())
			tc.set(&host.Status)
			g.Expect(c.Status().Update(t.Context(), host)).To(MatchError(ContainSubstring(tc.err)))
		})
	}
}
