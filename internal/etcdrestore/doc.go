// Package etcdrestore decides whether etcd of a cluster may be restored, and says what that
// would do. It is pure: from objects to a decision. The controller of ElementalEtcdRestores does
// it.
package etcdrestore
