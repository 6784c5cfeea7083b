module stafett/examples/apps

go 1.22
