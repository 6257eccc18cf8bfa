// Builds the etcd server from its published module. The release's own main package cannot be a dependency: it maps
// its parts to folders of its own repository.
package main

import (
	"os"

	_ "go.etcd.io/etcd/etcdctl/v3/ctlv3" // keeps etcdctl in go.mod, so that it is built from the same versions
	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
