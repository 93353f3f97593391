package v1beta2_test

import "testing"

func TestElementalMachineCreate(t *testing.T) {
	testCreations(t, "ElementalMachine", []creation{
		{name: "no spec"},
		{name: "empty spec", spec: `spec: {}`},
		{name: "labels", spec: `spec: {hostSelector: {matchLabels: {example.com/role: worker, zone: "", A_b.c: x.Y_z-1}}}`},
		{name: "null labels", spec: `spec: {hostSelector: {matchLabels: null}}`},
		{name: "expressions", spec: `spec: {hostSelector: {matchExpressions: [{key: zone, operator: In, values: [a, b]}, {key: gpu, operator: Exists}, {key: a, operator: NotIn, values: [""]}, {key: old, operator: DoesNotExist}]}}`},
		{name: "pinned", spec: `spec: {hostName: rack1-a}`},
		{name: "most labels", spec: `spec: {hostSelector: {matchLabels: ` + many(64) + `}}`},
		{name: "held, disks erased", spec: `spec: {release: {policy: Hold, eraseDataDisks: Discard}}`},
		{name: "programs replaced", spec: `spec: {programs: Replace}`},
		{name: "an image", spec: `spec: {osImage: "oci:registry.example.com/os:v2"}`},
		{name: "timeout 0", spec: `spec: {release: {disconnectedTimeoutSeconds: 0}}`},

		{name: "pinned with a selector", spec: `spec: {hostName: a, hostSelector: {matchLabels: {a: b}}}`, err: "hostName pins one host"},
		{name: "label key with blanks", spec: `spec: {hostSelector: {matchLabels: {"a b": c}}}`, err: "keys must be label keys"},
		{name: "label key without name", spec: `spec: {hostSelector: {matchLabels: {example.com/: c}}}`, err: "keys must be label keys"},
		{name: "label key too long", spec: `spec: {hostSelector: {matchLabels: {` + long(64) + `: c}}}`, err: "keys must be label keys"},
		{name: "label value with blanks", spec: `spec: {hostSelector: {matchLabels: {a: "b c"}}}`, err: "spec.hostSelector.matchLabels.a: Invalid value"},
		{name: "label value too long", spec: `spec: {hostSelector: {matchLabels: {a: ` + long(64) + `}}}`, err: "Too long"},
		{name: "too many labels", spec: `spec: {hostSelector: {matchLabels: ` + many(65) + `}}`, err: "must have at most 64 items"},
		{name: "unknown operator", spec: `spec: {hostSelector: {matchExpressions: [{key: a, operator: Gt, values: ["1"]}]}}`, err: `Unsupported value: "Gt"`},
		{name: "In without values", spec: `spec: {hostSelector: {matchExpressions: [{key: a, operator: In}]}}`, err: "In and NotIn need values"},
		{name: "Exists with values", spec: `spec: {hostSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}`, err: "Exists and DoesNotExist take none"},
		{name: "no operator", spec: `spec: {hostSelector: {matchExpressions: [{key: a}]}}`, err: "operator: Required value"},
		{name: "expression key", spec: `spec: {hostSelector: {matchExpressions: [{key: "-a", operator: Exists}]}}`, err: "should match"},
		{name: "expression value", spec: `spec: {hostSelector: {matchExpressions: [{key: a, operator: In, values: ["-"]}]}}`, err: "should match"},
		{name: "choice without claim", spec: `spec: {hostRef: {name: a}}`, err: "hostRef.claimID: Required value"},
		{name: "providerID blank", spec: `spec: {providerID: ""}`, err: "should be at least 1 chars long"},
		{name: "providerID too long", spec: `spec: {providerID: ` + long(513) + `}`, err: "Too long"},
		{name: "unknown policy", spec: `spec: {release: {policy: Keep}}`, err: `Unsupported value: "Keep"`},
		{name: "unknown erasure", spec: `spec: {release: {eraseDataDisks: Shred}}`, err: `Unsupported value: "Shred"`},
		{name: "an image without a scheme", spec: `spec: {osImage: "registry.example.com/os:v2"}`, err: "should match '^(oci|docker|dir|file)"},
		{name: "an image with more arguments", spec: `spec: {osImage: "oci:os --force"}`, err: "should match"},
		{name: "unknown program policy", spec: `spec: {programs: Remove}`, err: `Unsupported value: "Remove"`},
		{name: "timeout negative", spec: `spec: {release: {disconnectedTimeoutSeconds: -1}}`, err: "should be greater than or equal to 0"},
		{name: "unknown field", spec: `spec: {hostSelector: {labels: {a: b}}}`, err: `unknown field "spec.hostSelector.labels"`},
	})
}

func TestElementalMachineUpdate(t *testing.T) {
	testChanges(t, "ElementalMachine", []change{
		{name: "first choice", from: `spec: {}`, to: `spec: {hostRef: {name: a, claimID: "1"}}`},
		{name: "another choice", from: `spec: {hostRef: {name: a, claimID: "1"}}`, to: `spec: {hostRef: {name: b, claimID: "2"}}`},
		{name: "choice withdrawn", from: `spec: {hostRef: {name: a, claimID: "1"}}`, to: `spec: {}`},
		{name: "providerID", from: `spec: {}`, to: `spec: {providerID: "elemental://ns/a"}`},
		{name: "release of a pinned machine", from: `spec: {hostName: a}`, to: `spec: {hostName: a, release: {disconnectedTimeoutSeconds: 1}}`},

		{name: "providerID changed", from: `spec: {providerID: "elemental://ns/a"}`, to: `spec: {providerID: "elemental://ns/b"}`, err: "providerID is immutable once set"},
		{name: "providerID removed", from: `spec: {providerID: "elemental://ns/a"}`, to: `spec: {}`, err: "providerID is immutable once set"},
		{name: "pin changed", from: `spec: {hostName: a}`, to: `spec: {hostName: b}`, err: "hostName is immutable"},
		{name: "pin added", from: `spec: {}`, to: `spec: {hostName: b}`, err: "hostName is immutable"},
		{name: "pin removed", from: `spec: {hostName: a}`, to: `spec: {}`, err: "hostName is immutable"},
	})
}

func TestElementalMachineTemplateCreate(t *testing.T) {
	testCreations(t, "ElementalMachineTemplate", []creation{
		{name: "empty", spec: `spec: {template: {spec: {}}}`},
		{name: "selector", spec: `spec: {template: {metadata: {annotations: {a: b}}, spec: {hostSelector: {matchLabels: {a: b}}, release: {disconnectedTimeoutSeconds: 20}}}}`},

		{name: "no spec", err: "spec: Required value"},
		{name: "no spec in the template", spec: `spec: {template: {}}`, err: "spec.template.spec: Required value"},
		{name: "pinned", spec: `spec: {template: {spec: {hostName: a}}}`, err: "can't be in a template; use hostSelector"},
		{name: "choice", spec: `spec: {template: {spec: {hostRef: {name: a, claimID: "1"}}}}`, err: "are set per machine and can't be in a template"},
		{name: "providerID", spec: `spec: {template: {spec: {providerID: "elemental://ns/a"}}}`, err: "are set per machine and can't be in a template"},
		{name: "selector invalid", spec: `spec: {template: {spec: {hostSelector: {matchLabels: {"a b": c}}}}}`, err: "keys must be label keys"},
	})
}
