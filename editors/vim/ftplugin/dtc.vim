" Two spaces, # comments; :make checks the model, gq lays it out.
if exists("b:did_ftplugin") | finish | endif
let b:did_ftplugin = 1
setlocal expandtab shiftwidth=2 softtabstop=2 commentstring=#\ %s comments=:#
setlocal makeprg=dtc\ --check\ %:S errorformat=%f:%l:%c:\ %trror:\ %m,%f:%l:%c:\ %tarning:\ %m,%-G%.%#
setlocal formatprg=dtc\ fmt
let b:undo_ftplugin = "setlocal expandtab< shiftwidth< softtabstop< commentstring< comments< makeprg< errorformat< formatprg<"
