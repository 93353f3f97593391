package objects

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ControlPlane is the label of control-plane Nodes, and the key of their taint.
const ControlPlane = "node-role.kubernetes.io/control-plane"

// Kubelet holds the values that a kubelet reports in its Node.
type Kubelet struct {
	Name, Version string
	Address       netip.Addr
	ControlPlane  bool
	Labels        map[string]string
	// Taints is nil if kubeadm's default taints apply.
	Taints []corev1.Taint
}

// Node returns the Node that the kubelet registers. It is Ready at once, because networks are not
// simulated.
func (k Kubelet) Node(uid types.UID, now time.Time) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: k.Name, UID: uid, Labels: map[string]string{corev1.LabelHostname: k.Name, corev1.LabelOSStable: "linux"}},
		Spec:       corev1.NodeSpec{Taints: k.Taints},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: k.Address.String()}, {Type: corev1.NodeHostName, Address: k.Name},
			},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: k.Version, OperatingSystem: "linux", OSImage: "simulated"},
		},
	}
	if k.ControlPlane {
		node.Labels[ControlPlane] = ""
		if k.Taints == nil {
			node.Spec.Taints = []corev1.Taint{{Key: ControlPlane, Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	maps.Copy(node.Labels, k.Labels)
	for kind, condition := range map[corev1.NodeConditionType]string{
		corev1.NodeMemoryPressure: "KubeletHasSufficientMemory", corev1.NodeDiskPressure: "KubeletHasNoDiskPressure",
		corev1.NodePIDPressure: "KubeletHasSufficientPID",
	} {
		setNode(node, kind, corev1.ConditionFalse, condition, "", now)
	}
	SetReady(node, now)
	return node
}

// Reregister updates an existing Node when its kubelet registers again. Labels and taints of
// others stay.
func Reregister(is, registered *corev1.Node) {
	if is.Labels == nil {
		is.Labels = map[string]string{}
	}
	maps.Copy(is.Labels, registered.Labels)
	is.Status = registered.Status
	is.Spec.Taints = slices.DeleteFunc(is.Spec.Taints, unreachable)
	for _, taint := range registered.Spec.Taints {
		if !slices.ContainsFunc(is.Spec.Taints, func(has corev1.Taint) bool { return has.MatchTaint(&taint) }) {
			is.Spec.Taints = append(is.Spec.Taints, taint)
		}
	}
}

// SetReady makes a Node Ready, as a connected kubelet does. changed is false if the Node was Ready
// before.
func SetReady(node *corev1.Node, now time.Time) (changed bool) {
	if IsReady(node) && !slices.ContainsFunc(node.Spec.Taints, unreachable) {
		return false
	}
	setNode(node, corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status", now)
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, unreachable)
	return true
}

// SetUnknown makes a Node's Ready condition Unknown, as the node lifecycle controller does when
// the kubelet is not connected. changed is false if the condition was Unknown before.
func SetUnknown(node *corev1.Node, now time.Time) (changed bool) {
	if status(node, corev1.NodeReady) == corev1.ConditionUnknown {
		return false
	}
	setNode(node, corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.", now)
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: effect})
	}
	return true
}

// IsReady reports whether a Node is Ready.
func IsReady(node *corev1.Node) bool { return status(node, corev1.NodeReady) == corev1.ConditionTrue }

func unreachable(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeUnreachable }

func status(node *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return ""
}

func setNode(node *corev1.Node, kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) {
	next := corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(now), LastHeartbeatTime: metav1.NewTime(now),
	}
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			node.Status.Conditions[i] = next
			return
		}
	}
	node.Status.Conditions = append(node.Status.Conditions, next)
}
