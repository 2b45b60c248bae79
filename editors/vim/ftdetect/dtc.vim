autocmd BufRead,BufNewFile *.dt setfiletype dtc
